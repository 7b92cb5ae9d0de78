-- Organizations, who is in them and who was asked to come; what they build: apps, their keys, people and domains.

CREATE TABLE org (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    slug TEXT NOT NULL UNIQUE,
    tier TEXT NOT NULL,
    logo_url TEXT,
    primary_color TEXT,
    metadata TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);

CREATE TABLE org_member (
    org_id TEXT NOT NULL REFERENCES org (id) ON DELETE CASCADE,
    account_id TEXT NOT NULL REFERENCES account (id) ON DELETE CASCADE,
    role TEXT NOT NULL,
    joined_at BIGINT NOT NULL,
    PRIMARY KEY (org_id, account_id)
);
CREATE INDEX org_member_newest ON org_member (org_id, joined_at, account_id);
CREATE INDEX org_member_of ON org_member (account_id, joined_at);

-- One for each address at the most; asking again replaces it. Only the hash of its link is here.
CREATE TABLE org_invite (
    org_id TEXT NOT NULL REFERENCES org (id) ON DELETE CASCADE,
    email_key TEXT NOT NULL,
    email TEXT NOT NULL,
    role TEXT NOT NULL,
    hash TEXT NOT NULL UNIQUE,
    invited_by TEXT NOT NULL REFERENCES account (id) ON DELETE CASCADE,
    created_at BIGINT NOT NULL,
    sent_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    PRIMARY KEY (org_id, email_key)
);
CREATE INDEX org_invite_newest ON org_invite (org_id, created_at, email_key);
CREATE INDEX org_invite_by ON org_invite (invited_by);
CREATE INDEX org_invite_age ON org_invite (expires_at);

CREATE TABLE app (
    id TEXT PRIMARY KEY,
    org_id TEXT NOT NULL REFERENCES org (id) ON DELETE CASCADE,
    owner_id TEXT REFERENCES account (id) ON DELETE SET NULL,
    name TEXT NOT NULL,
    slug TEXT NOT NULL UNIQUE,
    redirect_uris TEXT NOT NULL,
    allowed_origins TEXT NOT NULL,
    settings TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);
CREATE INDEX app_newest ON app (org_id, created_at, id);

-- `prefix` is what a person recognises a key by; the key itself is nowhere.
CREATE TABLE app_key (
    id TEXT PRIMARY KEY,
    app_id TEXT NOT NULL REFERENCES app (id) ON DELETE CASCADE,
    hash TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL,
    environment TEXT NOT NULL,
    name TEXT,
    prefix TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    last_used_at BIGINT
);
CREATE INDEX app_key_newest ON app_key (app_id, created_at, id);

-- The people who signed in through an app.
CREATE TABLE app_user (
    app_id TEXT NOT NULL REFERENCES app (id) ON DELETE CASCADE,
    account_id TEXT NOT NULL REFERENCES account (id) ON DELETE CASCADE,
    first_sign_in_at BIGINT NOT NULL,
    last_sign_in_at BIGINT NOT NULL,
    PRIMARY KEY (app_id, account_id)
);
CREATE INDEX app_user_newest ON app_user (app_id, last_sign_in_at, account_id);
CREATE INDEX app_user_of ON app_user (account_id);

-- Whose domain it is is proven by a record in its DNS. Many may claim a name; one can have proven it.
CREATE TABLE app_domain (
    app_id TEXT PRIMARY KEY REFERENCES app (id) ON DELETE CASCADE,
    domain TEXT NOT NULL,
    token TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    checked_at BIGINT,
    verified_at BIGINT
);
CREATE UNIQUE INDEX app_domain_proven ON app_domain (domain) WHERE verified_at IS NOT NULL;

-- The organization a session acts for, and the app it belongs to.
ALTER TABLE session ADD COLUMN org_id TEXT REFERENCES org (id) ON DELETE SET NULL;
ALTER TABLE session ADD COLUMN app_id TEXT REFERENCES app (id) ON DELETE CASCADE;
CREATE INDEX session_in_org ON session (org_id) WHERE org_id IS NOT NULL;
CREATE INDEX session_in_app ON session (app_id) WHERE app_id IS NOT NULL;
-- An invite is accepted when somebody signs up with it; nothing waits for it any more.
ALTER TABLE account DROP COLUMN invite_token;
-- The one a person switched to last.
ALTER TABLE account ADD COLUMN active_org_id TEXT REFERENCES org (id) ON DELETE SET NULL;
CREATE INDEX account_in_org ON account (active_org_id) WHERE active_org_id IS NOT NULL;
ALTER TABLE device_code ADD COLUMN app_id TEXT REFERENCES app (id) ON DELETE CASCADE;
CREATE INDEX device_code_in_app ON device_code (app_id) WHERE app_id IS NOT NULL;

CREATE INDEX audit_event_org ON audit_event (org_id, at, id) WHERE org_id IS NOT NULL;
-- What somebody did to somebody else, so that it can be made nameless when they leave.
CREATE INDEX audit_event_by ON audit_event (actor) WHERE actor <> account_id;
