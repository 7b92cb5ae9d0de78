-- The built-in sandbox processor: its own objects in the processor's form, its events and the answers to repeated requests. No
-- other code reads them.
CREATE TABLE sandbox_object (
    id TEXT PRIMARY KEY,
    kind TEXT NOT NULL,
    -- The customer, subscription or account it belongs to.
    parent TEXT NOT NULL,
    body TEXT NOT NULL,
    -- When something happens to it by itself: a renewal, a retry, an expiry.
    due_at BIGINT,
    created_at BIGINT NOT NULL
);
CREATE INDEX sandbox_object_parent ON sandbox_object (kind, parent, created_at, id);
CREATE INDEX sandbox_object_due ON sandbox_object (due_at, id) WHERE due_at IS NOT NULL;

CREATE TABLE sandbox_event (
    id TEXT PRIMARY KEY,
    account TEXT NOT NULL,
    body TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    delivered_at BIGINT
);
CREATE INDEX sandbox_event_newest ON sandbox_event (created_at, id);

CREATE TABLE sandbox_reply (
    request_key TEXT PRIMARY KEY,
    digest TEXT NOT NULL,
    status BIGINT NOT NULL,
    body TEXT NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE INDEX sandbox_reply_old ON sandbox_reply (created_at);
