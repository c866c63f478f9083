-- +goose Up
CREATE TABLE repositories (
    id       bigint PRIMARY KEY,
    name     text NOT NULL,
    language text NOT NULL,
    stars    int NOT NULL
);
INSERT INTO repositories
SELECT r, 'repository-' || r, (ARRAY['go', 'sql'])[1 + r % 2], r % 100
FROM generate_series(1, 1000) AS r;

-- +goose Down
DROP TABLE repositories;
