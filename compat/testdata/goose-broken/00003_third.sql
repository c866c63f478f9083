-- +goose NO TRANSACTION
-- +goose Up
INSERT INTO ledger VALUES (3);
INSERT INTO ledger VALUES (1);

-- +goose Down
DELETE FROM ledger WHERE n = 3;
