-- +goose Up
CREATE TABLE ledger (n int PRIMARY KEY);
INSERT INTO ledger VALUES (1);

-- +goose Down
DROP TABLE ledger;
