module github.com/coalesce-pgx/coalesce/internal/statement/oracle

go 1.25.0

require (
	github.com/coalesce-pgx/coalesce v0.0.0
	github.com/pganalyze/pg_query_go/v6 v6.2.5
	google.golang.org/protobuf v1.33.0
)

replace github.com/coalesce-pgx/coalesce => ../../..
