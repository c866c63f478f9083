DROP INDEX CONCURRENTLY accounts_balance;
