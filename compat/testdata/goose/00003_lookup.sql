-- +goose NO TRANSACTION
-- +goose Up
CREATE INDEX CONCURRENTLY accounts_balance ON accounts (balance);
VACUUM accounts;

-- +goose Down
DROP INDEX CONCURRENTLY accounts_balance;
