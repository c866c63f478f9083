-- name: GetAuthor :one
SELECT * FROM authors WHERE id = $1;

-- name: GetAuthorByName :one
SELECT * FROM authors WHERE name = $1 LIMIT 1;

-- name: ListAuthors :many
SELECT * FROM authors ORDER BY id;

-- name: ListAuthorsByIDs :many
SELECT * FROM authors WHERE id = ANY (sqlc.arg(ids)::bigint[]) ORDER BY id;

-- name: ListAuthorNames :many
SELECT name FROM authors WHERE mood = $1 AND (sqlc.narg(prefix)::text IS NULL OR name LIKE sqlc.narg(prefix) || '%') ORDER BY name;

-- name: CountAuthors :one
SELECT count(*) FROM authors;

-- name: CreateAuthor :one
INSERT INTO authors (name, bio, mood, tags, details, born, rating)
VALUES ($1, $2, $3, $4, $5, $6, $7)
RETURNING *;

-- name: UpsertAuthor :one
INSERT INTO authors (name, bio) VALUES ($1, $2)
ON CONFLICT (name) DO UPDATE SET bio = excluded.bio
RETURNING id, bio;

-- name: UpdateBio :exec
UPDATE authors SET bio = $2 WHERE id = $1;

-- name: RenameAuthor :execrows
UPDATE authors SET name = sqlc.arg(new_name) WHERE name = sqlc.arg(old_name);

-- name: DeleteAuthors :execrows
DELETE FROM authors WHERE id = ANY (sqlc.arg(ids)::bigint[]);

-- name: TouchAuthors :execresult
UPDATE authors SET details = details || sqlc.arg(more)::jsonb;

-- name: CreateBook :one
INSERT INTO books (author_id, title, pages, cover) VALUES ($1, $2, $3, $4) RETURNING id;

-- name: ListBooks :many
SELECT sqlc.embed(books), authors.name AS author
FROM books JOIN authors ON authors.id = books.author_id
ORDER BY books.id;

-- name: PagesByAuthor :many
SELECT a.id, a.name, coalesce(sum(b.pages), 0)::bigint AS pages, count(b.id) AS books
FROM authors a LEFT JOIN books b ON b.author_id = a.id
GROUP BY a.id ORDER BY a.id;

-- name: LockAuthor :one
SELECT * FROM authors WHERE id = $1 FOR UPDATE;
