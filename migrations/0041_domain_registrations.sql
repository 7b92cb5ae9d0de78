-- A domain that an organization buys at the registrar. The row is there before the registrar is asked, so a purchase is never
-- made twice. What the registrar needs to know of its owner is sealed, and gone when the purchase has ended.
CREATE TABLE domain_registration (
    id TEXT PRIMARY KEY,
    org_id TEXT NOT NULL REFERENCES org (id) ON DELETE CASCADE,
    app_id TEXT REFERENCES app (id) ON DELETE SET NULL,
    domain TEXT NOT NULL,
    years BIGINT NOT NULL,
    auto_renew BOOLEAN NOT NULL,
    privacy BOOLEAN NOT NULL,
    price BIGINT NOT NULL,
    currency TEXT NOT NULL,
    contact BYTEA,
    status TEXT NOT NULL,
    message TEXT,
    is_open BOOLEAN NOT NULL,
    -- When the registrar was asked to register it, and what it calls that.
    asked_at BIGINT,
    operation TEXT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    expires_at BIGINT,
    next_poll_at BIGINT
);
CREATE UNIQUE INDEX domain_registration_domain_key ON domain_registration (domain) WHERE is_open;
CREATE INDEX domain_registration_due ON domain_registration (next_poll_at, id) WHERE next_poll_at IS NOT NULL;
CREATE INDEX domain_registration_newest ON domain_registration (org_id, created_at, id);
