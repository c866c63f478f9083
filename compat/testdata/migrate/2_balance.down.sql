ALTER TABLE accounts DROP balance;
