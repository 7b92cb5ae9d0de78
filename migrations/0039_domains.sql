-- An app has several domains: its own name, and those its site is served under. One row is one name of one app, whatever way
-- it was added. Rows are copied because the app alone was the key before.
CREATE TABLE app_domain_next (
    id TEXT PRIMARY KEY,
    app_id TEXT NOT NULL REFERENCES app (id) ON DELETE CASCADE,
    org_id TEXT NOT NULL REFERENCES org (id) ON DELETE CASCADE,
    domain TEXT NOT NULL,
    token TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    -- What it is for: the app's own name, a name of its site, and whether it is switched on by itself.
    is_own BOOLEAN NOT NULL DEFAULT FALSE,
    is_listed BOOLEAN NOT NULL DEFAULT FALSE,
    is_automatic BOOLEAN NOT NULL DEFAULT FALSE,
    attached_at BIGINT,
    redirect_to TEXT,
    -- The proof.
    verified_at BIGINT,
    proven_by TEXT,
    checked_at BIGINT,
    seen TEXT,
    reason TEXT,
    pending_since BIGINT,
    missing_since BIGINT,
    contested_since BIGINT,
    warned_at BIGINT,
    -- Where it stands.
    status TEXT NOT NULL DEFAULT 'pending_ownership',
    status_since BIGINT NOT NULL,
    status_reason TEXT,
    found TEXT,
    looks BIGINT NOT NULL DEFAULT 0,
    fruitless BIGINT NOT NULL DEFAULT 0,
    next_check_at BIGINT,
    astray_looks BIGINT NOT NULL DEFAULT 0,
    astray_since BIGINT,
    told_at BIGINT,
    active_at BIGINT
);
INSERT INTO app_domain_next (id, app_id, org_id, domain, token, created_at, is_own, verified_at, checked_at, seen, reason,
        pending_since, missing_since, contested_since, warned_at, status, status_since, fruitless, next_check_at)
    SELECT app_domain.app_id, app_domain.app_id, app.org_id, app_domain.domain, app_domain.token, app_domain.created_at, TRUE,
           app_domain.verified_at, app_domain.checked_at, app_domain.seen, app_domain.reason, app_domain.pending_since,
           app_domain.missing_since, app_domain.contested_since, app_domain.warned_at,
           CASE WHEN app_domain.verified_at IS NOT NULL THEN 'pending_dns'
                WHEN app_domain.reason IN ('lost_ownership', 'timed_out') THEN 'failed' ELSE 'pending_ownership' END,
           app_domain.created_at, app_domain.fruitless, app_domain.next_check_at
    FROM app_domain JOIN app ON app.id = app_domain.app_id;
DROP TABLE app_domain;
ALTER TABLE app_domain_next RENAME TO app_domain;
CREATE UNIQUE INDEX app_domain_app_id_domain_key ON app_domain (app_id, domain);
CREATE UNIQUE INDEX app_domain_proven ON app_domain (domain) WHERE verified_at IS NOT NULL;
CREATE UNIQUE INDEX app_domain_own ON app_domain (app_id) WHERE is_own;
CREATE INDEX app_domain_due ON app_domain (next_check_at, id) WHERE next_check_at IS NOT NULL;
CREATE INDEX app_domain_claims ON app_domain (domain, app_id);
CREATE INDEX app_domain_covered ON app_domain (proven_by) WHERE proven_by IS NOT NULL;
CREATE INDEX app_domain_newest ON app_domain (app_id, created_at, id);
CREATE INDEX app_domain_of_org ON app_domain (org_id, status);

-- How often something was done in a while: new domains, questions to the registrar, orders.
CREATE TABLE domain_budget (
    subject TEXT NOT NULL,
    bucket BIGINT NOT NULL,
    used BIGINT NOT NULL,
    ends_at BIGINT NOT NULL,
    PRIMARY KEY (subject, bucket)
);
CREATE INDEX domain_budget_over ON domain_budget (ends_at);
