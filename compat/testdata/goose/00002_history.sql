-- +goose Up
CREATE TABLE history (account bigint NOT NULL REFERENCES accounts ON DELETE CASCADE, was numeric(12, 2) NOT NULL);

-- +goose StatementBegin
CREATE FUNCTION remember() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO history VALUES (OLD.id, OLD.balance);
	RETURN NEW;
END
$$;
-- +goose StatementEnd

CREATE TRIGGER remember AFTER UPDATE OF balance ON accounts FOR EACH ROW EXECUTE FUNCTION remember();
UPDATE accounts SET balance = balance + 1;

-- +goose Down
DROP TRIGGER remember ON accounts;
DROP FUNCTION remember;
DROP TABLE history;
