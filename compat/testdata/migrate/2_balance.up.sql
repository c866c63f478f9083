BEGIN;
ALTER TABLE accounts ADD balance numeric(12, 2) NOT NULL DEFAULT 0;
UPDATE accounts SET balance = 10 * id;
COMMIT;
