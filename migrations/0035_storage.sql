-- Files of an app's users.
CREATE TABLE storage_object (
    id TEXT PRIMARY KEY,
    app_id TEXT NOT NULL REFERENCES app (id) ON DELETE CASCADE,
    org_id TEXT NOT NULL,
    owner_id TEXT NOT NULL REFERENCES account (id) ON DELETE CASCADE,
    environment TEXT NOT NULL,
    name TEXT NOT NULL,
    -- The first bytes of the name, in whose order objects are found by the start of their names.
    name_start BYTEA NOT NULL,
    content_type TEXT NOT NULL,
    size BIGINT NOT NULL,
    -- While it is pending: what the client says it will be.
    sha256 TEXT,
    status TEXT NOT NULL,
    visibility TEXT NOT NULL,
    metadata TEXT NOT NULL,
    -- The key that its upload URL is signed for.
    slot TEXT NOT NULL,
    -- The file with its bytes, and its digest.
    file TEXT,
    file_sha256 TEXT,
    -- How long it stays after it is ready.
    ttl_ms BIGINT,
    -- While it is pending: when the upload URL expires.
    expires_at BIGINT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    finalized_at BIGINT
);
CREATE UNIQUE INDEX storage_object_slot_key ON storage_object (slot);
CREATE INDEX storage_object_owner ON storage_object (owner_id, app_id, environment, created_at, id);
CREATE INDEX storage_object_owner_name ON storage_object (owner_id, app_id, environment, name_start, id);
CREATE INDEX storage_object_app ON storage_object (app_id, environment, created_at, id);
CREATE INDEX storage_object_app_name ON storage_object (app_id, environment, name_start, id);
CREATE INDEX storage_object_pending ON storage_object (app_id, environment, created_at, id) WHERE status = 'pending';
CREATE INDEX storage_object_expiry ON storage_object (expires_at, id) WHERE expires_at IS NOT NULL;

-- Every file in the store, written down before its first byte. One with a date is deleted after it.
CREATE TABLE storage_file (
    key TEXT PRIMARY KEY,
    app_id TEXT NOT NULL,
    owner_id TEXT NOT NULL,
    doomed_at BIGINT
);
CREATE INDEX storage_file_doomed ON storage_file (doomed_at, key) WHERE doomed_at IS NOT NULL;
CREATE INDEX storage_file_app ON storage_file (app_id, key) WHERE doomed_at IS NULL;
CREATE INDEX storage_file_owner ON storage_file (owner_id, key) WHERE doomed_at IS NULL;

-- What each user of an app stores, and all of them together, where the owner is empty.
CREATE TABLE storage_usage (
    app_id TEXT NOT NULL REFERENCES app (id) ON DELETE CASCADE,
    environment TEXT NOT NULL,
    owner_id TEXT NOT NULL,
    objects BIGINT NOT NULL,
    bytes BIGINT NOT NULL,
    pending BIGINT NOT NULL,
    PRIMARY KEY (app_id, environment, owner_id)
);
CREATE INDEX storage_usage_owner ON storage_usage (owner_id) WHERE owner_id <> '';
