DELETE FROM ledger WHERE n = 3;
