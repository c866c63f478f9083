-- +goose NO TRANSACTION
-- +goose Up
INSERT INTO ledger VALUES (4);

-- +goose Down
DELETE FROM ledger WHERE n = 4;
