-- +goose Up
INSERT INTO ledger VALUES (2);
CREATE TABLE undone (n int);
INSERT INTO ledger VALUES (1);

-- +goose Down
DELETE FROM ledger WHERE n > 1;
