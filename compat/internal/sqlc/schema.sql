CREATE TYPE mood AS ENUM ('sad', 'happy');

CREATE TABLE authors (
    id         bigserial PRIMARY KEY,
    name       text NOT NULL UNIQUE,
    bio        text,
    mood       mood NOT NULL DEFAULT 'happy',
    tags       text[] NOT NULL DEFAULT '{}',
    details    jsonb NOT NULL DEFAULT '{}',
    born       date,
    rating     numeric(4, 2),
    token      uuid NOT NULL DEFAULT '6f2d41c8-97d4-4c5a-9b0d-3d1a4c8f6a01',
    created_at timestamptz NOT NULL DEFAULT '2001-02-03 04:05:06Z'
);

CREATE TABLE books (
    id        bigserial PRIMARY KEY,
    author_id bigint NOT NULL REFERENCES authors ON DELETE CASCADE,
    title     text NOT NULL,
    pages     int NOT NULL DEFAULT 0,
    cover     bytea
);
