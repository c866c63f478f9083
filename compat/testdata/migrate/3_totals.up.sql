CREATE FUNCTION cents(numeric) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$ SELECT ($1 * 100)::bigint $$;
CREATE VIEW totals AS SELECT count(*) AS accounts, cents(sum(balance)) AS cents FROM accounts;
