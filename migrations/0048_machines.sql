-- Software with an identity of its own: agents, framework agents, MCP servers.
CREATE TABLE machine (
    id TEXT PRIMARY KEY,
    kind TEXT NOT NULL,
    org_id TEXT NOT NULL REFERENCES org (id) ON DELETE CASCADE,
    owner_id TEXT REFERENCES account (id) ON DELETE SET NULL,
    name TEXT NOT NULL,
    description TEXT,
    state TEXT NOT NULL,
    suspended_by TEXT,
    suspended_reason TEXT,
    suspended_at BIGINT,
    scopes TEXT NOT NULL,
    audiences TEXT NOT NULL,
    limits TEXT NOT NULL,
    -- Public keys that client assertions are signed with, or where they are published.
    jwks TEXT,
    jwks_uri TEXT,
    redirect_uris TEXT NOT NULL DEFAULT '[]',
    -- Tokens of another generation are invalid.
    generation BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    proven_at BIGINT,
    last_used_at BIGINT,
    expires_at BIGINT
);
CREATE INDEX machine_of_owner ON machine (owner_id, kind, created_at, id);
CREATE INDEX machine_of_org ON machine (org_id, kind, created_at, id);
CREATE INDEX machine_unproven ON machine (created_at) WHERE kind = 'agent' AND state = 'pending';

-- Client secrets and kill switches, as hashes.
CREATE TABLE machine_secret (
    hash TEXT PRIMARY KEY,
    machine_id TEXT NOT NULL REFERENCES machine (id) ON DELETE CASCADE,
    purpose TEXT NOT NULL,
    prefix TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    -- The end of a grace period after a rotation.
    expires_at BIGINT
);
CREATE INDEX machine_secret_of ON machine_secret (machine_id, purpose);
CREATE INDEX machine_secret_expired ON machine_secret (expires_at) WHERE expires_at IS NOT NULL;

-- What a machine has used of each of its limits in a window.
CREATE TABLE machine_meter (
    machine_id TEXT NOT NULL REFERENCES machine (id) ON DELETE CASCADE,
    meter TEXT NOT NULL,
    per TEXT NOT NULL,
    since BIGINT NOT NULL,
    used BIGINT NOT NULL,
    -- The percentage that mails were sent about.
    told BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (machine_id, meter, per, since)
);
CREATE INDEX machine_meter_old ON machine_meter (since);

-- Each spending that was allowed.
CREATE TABLE machine_spending (
    id TEXT PRIMARY KEY,
    machine_id TEXT NOT NULL REFERENCES machine (id) ON DELETE CASCADE,
    app_id TEXT NOT NULL,
    meter TEXT NOT NULL,
    amount BIGINT NOT NULL,
    action TEXT,
    -- A repetition with the same key is not counted again.
    repeat_key TEXT,
    at BIGINT NOT NULL
);
CREATE UNIQUE INDEX machine_spending_machine_id_app_id_repeat_key_key
    ON machine_spending (machine_id, app_id, repeat_key) WHERE repeat_key IS NOT NULL;
CREATE INDEX machine_spending_of ON machine_spending (machine_id, at, id);
CREATE INDEX machine_spending_old ON machine_spending (at);

-- The log of a machine is its part of the audit log.
ALTER TABLE audit_event ADD COLUMN machine_id TEXT;
CREATE INDEX audit_event_machine ON audit_event (machine_id, at, id) WHERE machine_id IS NOT NULL;
