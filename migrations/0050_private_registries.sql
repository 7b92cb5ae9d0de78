-- Keys in the base URL of an organization's own registry, for clients that cannot sign in.
CREATE TABLE registry_key (
    id TEXT PRIMARY KEY,
    org_id TEXT NOT NULL REFERENCES org (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    prefix TEXT NOT NULL,
    hash TEXT NOT NULL UNIQUE,
    created_by TEXT REFERENCES account (id) ON DELETE SET NULL,
    created_at BIGINT NOT NULL,
    last_used_at BIGINT
);
CREATE INDEX registry_key_of ON registry_key (org_id, created_at, id);
