-- What people let other programs know and do: codes, consents, and the clients that are no apps of ours.

-- What the session of a client may do: the scopes it was granted, and where its tokens count. Without scopes it is the
-- person's own. `client` names a client that is no app.
ALTER TABLE session ADD COLUMN client TEXT;
ALTER TABLE session ADD COLUMN scopes TEXT;
ALTER TABLE session ADD COLUMN resource TEXT;

-- A code stands for a session somebody has, for a minute. What it gave is kept, so that a second use can take it back.
CREATE TABLE oauth_code (
    hash TEXT PRIMARY KEY,
    client TEXT NOT NULL,
    session_id TEXT NOT NULL REFERENCES session (id) ON DELETE CASCADE,
    redirect_uri TEXT NOT NULL,
    challenge TEXT NOT NULL,
    scopes TEXT NOT NULL,
    resource TEXT,
    nonce TEXT,
    expires_at BIGINT NOT NULL,
    used_at BIGINT,
    gave TEXT
);
CREATE INDEX oauth_code_age ON oauth_code (expires_at);
CREATE INDEX oauth_code_of ON oauth_code (session_id);

-- Once for each client and each place its tokens count at; `resource` is empty for this service itself.
CREATE TABLE consent (
    id TEXT PRIMARY KEY,
    account_id TEXT NOT NULL REFERENCES account (id) ON DELETE CASCADE,
    client TEXT NOT NULL,
    app_id TEXT REFERENCES app (id) ON DELETE CASCADE,
    resource TEXT NOT NULL,
    name TEXT NOT NULL,
    scopes TEXT NOT NULL,
    -- The origin or scheme that people were sent on to.
    place TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    UNIQUE (account_id, client, resource)
);
CREATE INDEX consent_newest ON consent (account_id, created_at, id);
CREATE INDEX consent_in_app ON consent (app_id) WHERE app_id IS NOT NULL;

-- Clients that describe themselves at an address of theirs, as read last, and those that registered themselves.
CREATE TABLE oauth_client (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    redirect_uris TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    read_until BIGINT,
    used_at BIGINT
);
CREATE INDEX oauth_client_age ON oauth_client (created_at) WHERE used_at IS NULL;

-- What the people of an app let it know; nothing is said of those who signed in to it with its key.
ALTER TABLE app_user ADD COLUMN scopes TEXT;

-- What a device asked for when it was an app that asked.
ALTER TABLE device_code ADD COLUMN scopes TEXT;
