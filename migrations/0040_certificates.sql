-- The account at each certificate authority, sealed.
CREATE TABLE acme_account (
    directory TEXT PRIMARY KEY,
    sealed BYTEA NOT NULL,
    created_at BIGINT NOT NULL
);

-- The certificate of a name, and the order that is open for it. Keys are sealed. Names of the installation itself have no app.
CREATE TABLE certificate (
    name TEXT PRIMARY KEY,
    app_id TEXT REFERENCES app (id) ON DELETE CASCADE,
    org_id TEXT REFERENCES org (id) ON DELETE CASCADE,
    created_at BIGINT NOT NULL,
    chain TEXT,
    sealed_key BYTEA,
    issuer TEXT,
    not_before BIGINT,
    not_after BIGINT,
    renew_at BIGINT,
    renewal_checked_at BIGINT,
    order_url TEXT,
    order_key BYTEA,
    ordered_at BIGINT,
    next_try_at BIGINT,
    failures BIGINT NOT NULL DEFAULT 0,
    reason TEXT,
    error TEXT,
    warned_at BIGINT,
    -- Who works on it, and until when: of two nodes one.
    fence BIGINT NOT NULL DEFAULT 0,
    leased_until BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX certificate_due ON certificate (next_try_at, name) WHERE next_try_at IS NOT NULL;
CREATE INDEX certificate_to_renew ON certificate (renew_at, name) WHERE renew_at IS NOT NULL;
CREATE INDEX certificate_of_app ON certificate (app_id);
CREATE INDEX certificate_of_org ON certificate (org_id, order_url);

-- What a certificate authority is to be answered while it checks a name; on any node.
CREATE TABLE acme_challenge (
    token TEXT NOT NULL,
    name TEXT NOT NULL REFERENCES certificate (name) ON DELETE CASCADE,
    kind TEXT NOT NULL,
    answer TEXT NOT NULL,
    ends_at BIGINT NOT NULL,
    PRIMARY KEY (name, token)
);
CREATE INDEX acme_challenge_over ON acme_challenge (ends_at);
