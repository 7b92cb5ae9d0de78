-- Pictures that somebody may upload or has uploaded: avatars of people and logos of organizations. A row without
-- `done_at` is an upload that is open; one with it says which object is the picture of whom. Both keys are known from
-- the start, so that whatever happens on the way, the row leads to everything that may lie in the store.
CREATE TABLE upload (
    id TEXT PRIMARY KEY,
    kind TEXT NOT NULL,
    subject_id TEXT NOT NULL,
    incoming_key TEXT NOT NULL UNIQUE,
    picture_key TEXT NOT NULL UNIQUE,
    content_type TEXT NOT NULL,
    length BIGINT NOT NULL,
    -- Who asked and from where, for the audit log; forgotten when it is written there.
    actor_id TEXT NOT NULL,
    app_id TEXT,
    ip TEXT,
    user_agent TEXT,
    expires_at BIGINT NOT NULL,
    -- When its bytes began to be looked at: they come by this server once.
    begun_at BIGINT,
    done_at BIGINT
);
CREATE INDEX upload_of ON upload (kind, subject_id);
CREATE INDEX upload_age ON upload (expires_at) WHERE done_at IS NULL;
