-- +goose Up
CREATE VIEW totals AS SELECT kind, sum(balance) AS balance FROM accounts GROUP BY kind;

-- +goose Down
DROP VIEW totals;
