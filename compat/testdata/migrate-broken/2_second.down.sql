DELETE FROM ledger WHERE n = 2;
