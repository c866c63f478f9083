-- +goose Up
CREATE TABLE accounts (
	id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	name text NOT NULL UNIQUE,
	balance numeric(12, 2) NOT NULL DEFAULT 0
);
INSERT INTO accounts (name, balance) VALUES ('ada', 10), ('grace', 20.50);

-- +goose Down
DROP TABLE accounts;
