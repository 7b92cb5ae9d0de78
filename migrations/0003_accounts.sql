-- People, their sessions, the keys that sign for them, and what is remembered about what they did.

-- `email_key` is the address as it is compared; `email` as the person wrote it.
CREATE TABLE account (
    id TEXT PRIMARY KEY,
    email TEXT,
    email_key TEXT UNIQUE,
    name TEXT NOT NULL,
    bio TEXT,
    avatar_url TEXT,
    email_verified BOOLEAN NOT NULL,
    password_hash TEXT,
    accepts_marketing BOOLEAN NOT NULL,
    invite_token TEXT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);

-- A refresh token is not stored at all: it is a keyed digest of the session and its generation.
-- A session that ended is kept until its tokens would have run out, so that a late reuse is recognised.
CREATE TABLE session (
    id TEXT PRIMARY KEY,
    account_id TEXT NOT NULL REFERENCES account (id) ON DELETE CASCADE,
    generation BIGINT NOT NULL,
    rotated_at BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    authenticated_at BIGINT NOT NULL,
    last_seen_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    ends_at BIGINT NOT NULL,
    methods TEXT NOT NULL,
    device TEXT NOT NULL,
    user_agent TEXT NOT NULL,
    ip TEXT NOT NULL,
    revoked_at BIGINT
);
CREATE INDEX session_of ON session (account_id, created_at, id);
CREATE INDEX session_end ON session (ends_at);

-- Secrets that work once: links, codes, captcha passes. Only their hashes are here.
CREATE TABLE once (
    hash TEXT PRIMARY KEY,
    purpose TEXT NOT NULL,
    account_id TEXT REFERENCES account (id) ON DELETE CASCADE,
    code_hash TEXT,
    code_expires_at BIGINT,
    tries BIGINT NOT NULL,
    sealed BYTEA,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    used_at BIGINT
);
CREATE INDEX once_of ON once (account_id, purpose, created_at);
CREATE INDEX once_age ON once (expires_at);

-- RSA keys. The private part is sealed. A key is published before it signs and for as long as its tokens live.
CREATE TABLE signing_key (
    id TEXT PRIMARY KEY,
    sealed BYTEA NOT NULL,
    modulus TEXT NOT NULL,
    exponent TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    signs_from BIGINT NOT NULL,
    signs_until BIGINT
);

-- Mail that is on its way out, sealed, because it holds links that sign people in.
CREATE TABLE mail (
    id TEXT PRIMARY KEY,
    recipient_key TEXT NOT NULL,
    sealed BYTEA NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE INDEX mail_in_order ON mail (recipient_key, created_at, id);

-- What happened, for the people it happened to and for the apps that listen.
CREATE TABLE audit_event (
    id TEXT PRIMARY KEY,
    type TEXT NOT NULL,
    webhook TEXT,
    account_id TEXT,
    actor TEXT,
    target TEXT,
    org_id TEXT,
    app_id TEXT,
    ip TEXT,
    user_agent TEXT,
    at BIGINT NOT NULL,
    details TEXT NOT NULL
);
CREATE INDEX audit_event_of ON audit_event (account_id, at, id);
CREATE INDEX audit_event_newest ON audit_event (at, id);

-- Failures by what they are counted for (an address, a network), across nodes and restarts.
CREATE TABLE strike (
    subject TEXT NOT NULL,
    detail TEXT NOT NULL,
    strikes BIGINT NOT NULL,
    last_at BIGINT NOT NULL,
    PRIMARY KEY (subject, detail)
);
CREATE INDEX strike_age ON strike (last_at);

CREATE TABLE abuse_report (
    id TEXT PRIMARY KEY,
    kind TEXT NOT NULL,
    subject TEXT NOT NULL,
    score BIGINT NOT NULL,
    reasons TEXT NOT NULL,
    route TEXT NOT NULL,
    seen BIGINT NOT NULL,
    first_at BIGINT NOT NULL,
    last_at BIGINT NOT NULL,
    UNIQUE (kind, subject)
);
CREATE INDEX abuse_report_newest ON abuse_report (last_at, id);
