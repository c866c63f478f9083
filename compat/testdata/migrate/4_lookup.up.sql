CREATE INDEX CONCURRENTLY accounts_balance ON accounts (balance);
