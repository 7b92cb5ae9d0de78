-- Sites of apps: deployments, where their bytes are, and the hosts that serve them. Files are not rows: each deployment names
-- a manifest, which lies beside the packs with the bytes.
CREATE TABLE site (
    app_id TEXT PRIMARY KEY REFERENCES app (id) ON DELETE CASCADE,
    id TEXT NOT NULL UNIQUE,
    org_id TEXT NOT NULL,
    provider TEXT NOT NULL,
    status TEXT NOT NULL,
    -- The first label of the host that custom domains lead to.
    cname TEXT NOT NULL UNIQUE,
    settings TEXT NOT NULL,
    -- The distribution at another provider.
    external_id TEXT,
    external_host TEXT,
    error TEXT,
    -- What production serves. The number only rises, so of two deployments that overlap the later wins.
    active_id TEXT,
    active_number BIGINT NOT NULL,
    last_number BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);
CREATE INDEX site_provisioning ON site (updated_at) WHERE status = 'provisioning';

CREATE TABLE deployment (
    id TEXT PRIMARY KEY,
    app_id TEXT NOT NULL REFERENCES app (id) ON DELETE CASCADE,
    org_id TEXT NOT NULL,
    number BIGINT NOT NULL,
    status TEXT NOT NULL,
    target TEXT NOT NULL,
    -- Whether production is to point to it once it is ready.
    activates BOOLEAN NOT NULL,
    -- The first part of its own host.
    label TEXT NOT NULL UNIQUE,
    source TEXT NOT NULL,
    account_id TEXT,
    key_id TEXT,
    redeploy_of TEXT,
    installation_id TEXT,
    repository TEXT,
    branch TEXT,
    commit_facts TEXT,
    files BIGINT NOT NULL,
    bytes BIGINT NOT NULL,
    new_bytes BIGINT NOT NULL,
    archive_sha256 TEXT,
    idempotency_key TEXT,
    warnings TEXT NOT NULL,
    error TEXT,
    -- The object of the manifest, its SHA-256, and how many rules it has.
    manifest TEXT,
    manifest_sha256 TEXT,
    redirects BIGINT NOT NULL,
    headers BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    -- While it is processed, moved on every few seconds.
    alive_at BIGINT NOT NULL,
    ready_at BIGINT,
    activated_at BIGINT,
    deactivated_at BIGINT,
    failed_at BIGINT,
    -- When its files go, or went.
    expires_at BIGINT,
    expired_at BIGINT
);
CREATE UNIQUE INDEX deployment_app_id_number_key ON deployment (app_id, number);
CREATE INDEX deployment_newest ON deployment (app_id, created_at, id);
CREATE INDEX deployment_of_org ON deployment (org_id, created_at, id);
CREATE INDEX deployment_processing ON deployment (alive_at) WHERE status = 'processing';
CREATE INDEX deployment_kept ON deployment (app_id, number) WHERE status = 'ready' AND expired_at IS NULL;
CREATE INDEX deployment_idempotent ON deployment (app_id, idempotency_key) WHERE idempotency_key IS NOT NULL;

-- Objects with bytes or a manifest. The row comes before the object and goes after it. What no deployment has named for an
-- hour is deleted, also when its app is gone.
CREATE TABLE pack (
    object TEXT PRIMARY KEY,
    app_id TEXT NOT NULL,
    bytes BIGINT NOT NULL,
    touched_at BIGINT NOT NULL,
    is_going BOOLEAN NOT NULL
);
CREATE INDEX pack_old ON pack (touched_at);

CREATE TABLE deployment_pack (
    deployment_id TEXT NOT NULL REFERENCES deployment (id) ON DELETE CASCADE,
    object TEXT NOT NULL,
    PRIMARY KEY (deployment_id, object)
);
CREATE INDEX deployment_pack_object ON deployment_pack (object);

CREATE TABLE deployment_log (
    deployment_id TEXT NOT NULL REFERENCES deployment (id) ON DELETE CASCADE,
    seq BIGINT NOT NULL,
    at BIGINT NOT NULL,
    level TEXT NOT NULL,
    stage TEXT NOT NULL,
    message TEXT NOT NULL,
    path TEXT,
    PRIMARY KEY (deployment_id, seq)
);

-- Hosts beside {slug}.{edge_domain} that serve an app's site, or redirect to another host of it.
CREATE TABLE site_host (
    host TEXT PRIMARY KEY,
    app_id TEXT NOT NULL REFERENCES app (id) ON DELETE CASCADE,
    redirect_to TEXT,
    created_at BIGINT NOT NULL
);
CREATE INDEX site_host_app ON site_host (app_id);
