CREATE TABLE accounts (
	id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	name text NOT NULL UNIQUE
);
INSERT INTO accounts (name) VALUES ('ada'), ('grace');
