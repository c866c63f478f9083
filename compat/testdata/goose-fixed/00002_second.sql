-- +goose Up
INSERT INTO ledger VALUES (2);

-- +goose Down
DELETE FROM ledger WHERE n > 1;
