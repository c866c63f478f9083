-- name: FillRepositories :exec
INSERT INTO repositories
SELECT r, 'repository-' || r, (ARRAY['go', 'sql'])[1 + r % 2], r % 100
FROM generate_series(1, sqlc.arg(count)::int) AS r;

-- name: TopRepositories :many
SELECT id, name, stars
FROM repositories
WHERE language = $1
ORDER BY stars DESC, id
LIMIT 10;

-- name: StarRepository :one
UPDATE repositories
SET stars = stars + 1
WHERE id = $1
RETURNING stars;
