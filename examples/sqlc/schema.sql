CREATE TABLE repositories (
    id       bigint PRIMARY KEY,
    name     text NOT NULL,
    language text NOT NULL,
    stars    int NOT NULL
);
