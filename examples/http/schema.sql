CREATE TABLE repositories (
    id       bigint PRIMARY KEY,
    name     text NOT NULL,
    language text NOT NULL
);
CREATE TABLE commits (
    id            bigint PRIMARY KEY,
    repository_id bigint NOT NULL REFERENCES repositories,
    author        text NOT NULL,
    made_at       timestamptz NOT NULL
);
CREATE TABLE stars (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    repository_id bigint NOT NULL REFERENCES repositories
);
INSERT INTO repositories
SELECT r, 'repository-' || r, (ARRAY['Go', 'SQL', 'C', 'Rust'])[1 + r % 4]
FROM generate_series(1, 200) AS r;
INSERT INTO commits
SELECT c, 1 + c % 200, (ARRAY['ada', 'barbara', 'donald', 'edsger', 'frances', 'grace'])[1 + (c + c / 200) % (2 + c % 5)],
    timestamptz '2025-01-01 00:00:00Z' + c * 7919 % 31536000 * interval '1 second'
FROM generate_series(1, 40000) AS c;
INSERT INTO stars (repository_id)
-- Some are liked more than others.
SELECT 1 + 200 * s * s / 20001 / 20001 FROM generate_series(1, 20000::bigint) AS s;
CREATE INDEX ON commits (repository_id);
CREATE INDEX ON stars (repository_id);
