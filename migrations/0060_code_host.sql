-- Installations of our app at a code host, as organizations connected them. Several organizations may connect one, each with the
-- repositories that its own user proved. Everything is known by the host's numbers: names change.
CREATE TABLE codehost_installation (
    id TEXT PRIMARY KEY,
    org_id TEXT NOT NULL REFERENCES org (id) ON DELETE CASCADE,
    -- The host's number; none while an owner there has not approved it.
    external_id BIGINT,
    account_login TEXT NOT NULL,
    account_type TEXT NOT NULL,
    account_avatar TEXT,
    status TEXT NOT NULL,
    repository_selection TEXT NOT NULL,
    permissions TEXT NOT NULL,
    -- Whether the user who connected it may uninstall it there.
    may_uninstall BOOLEAN NOT NULL,
    commit_statuses BOOLEAN NOT NULL,
    pull_request_comments BOOLEAN NOT NULL,
    connected_by TEXT REFERENCES account (id) ON DELETE SET NULL,
    last_delivery_at BIGINT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);
CREATE UNIQUE INDEX codehost_installation_org_id_external_id_key ON codehost_installation (org_id, external_id)
    WHERE external_id IS NOT NULL;
CREATE INDEX codehost_installation_external ON codehost_installation (external_id) WHERE external_id IS NOT NULL;
CREATE INDEX codehost_installation_newest ON codehost_installation (org_id, created_at, id);
CREATE INDEX codehost_installation_by ON codehost_installation (connected_by);

-- The repositories that a user proved to have access to.
CREATE TABLE codehost_repository (
    installation_id TEXT NOT NULL REFERENCES codehost_installation (id) ON DELETE CASCADE,
    repository_id BIGINT NOT NULL,
    full_name TEXT NOT NULL,
    is_private BOOLEAN NOT NULL,
    default_branch TEXT NOT NULL,
    PRIMARY KEY (installation_id, repository_id)
);
CREATE INDEX codehost_repository_number ON codehost_repository (repository_id);

-- Which app a repository deploys to.
CREATE TABLE codehost_link (
    id TEXT PRIMARY KEY,
    installation_id TEXT NOT NULL,
    repository_id BIGINT NOT NULL,
    app_id TEXT NOT NULL REFERENCES app (id) ON DELETE CASCADE,
    production_branch TEXT,
    output_directory TEXT NOT NULL,
    previews TEXT NOT NULL,
    forks BOOLEAN NOT NULL,
    -- Whether pushes deploy a folder of the commit, or CI deploys what it builds.
    deployed_by TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    FOREIGN KEY (installation_id, repository_id) REFERENCES codehost_repository (installation_id, repository_id)
        ON DELETE CASCADE
);
CREATE UNIQUE INDEX codehost_link_installation_id_repository_id_app_id_key
    ON codehost_link (installation_id, repository_id, app_id);
CREATE UNIQUE INDEX codehost_link_app_id_key ON codehost_link (app_id) WHERE production_branch IS NOT NULL;
CREATE INDEX codehost_link_app ON codehost_link (app_id);

-- What was deployed last of a branch or a pull request, and who works on it.
CREATE TABLE codehost_head (
    link_id TEXT NOT NULL REFERENCES codehost_link (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    sha TEXT,
    deployment_id TEXT,
    pull_number BIGINT,
    comment_id BIGINT,
    busy_until BIGINT NOT NULL,
    fence BIGINT NOT NULL,
    is_asked_again BOOLEAN NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (link_id, name)
);

-- Deliveries of the host. Kept for 30 days; one that comes again is known by its id.
CREATE TABLE codehost_delivery (
    id TEXT PRIMARY KEY,
    event TEXT NOT NULL,
    action TEXT,
    external_id BIGINT NOT NULL,
    repository_id BIGINT,
    facts TEXT NOT NULL,
    via TEXT NOT NULL,
    received_at BIGINT NOT NULL
);
CREATE INDEX codehost_delivery_of ON codehost_delivery (external_id, received_at, id);
CREATE INDEX codehost_delivery_old ON codehost_delivery (received_at);

-- What a delivery led to in one organization.
CREATE TABLE codehost_outcome (
    id TEXT PRIMARY KEY,
    delivery_id TEXT NOT NULL REFERENCES codehost_delivery (id) ON DELETE CASCADE,
    installation_id TEXT NOT NULL REFERENCES codehost_installation (id) ON DELETE CASCADE,
    app_id TEXT,
    result TEXT NOT NULL,
    message TEXT NOT NULL,
    deployment_id TEXT,
    at BIGINT NOT NULL
);
CREATE INDEX codehost_outcome_of ON codehost_outcome (installation_id, delivery_id, at);
CREATE INDEX codehost_outcome_delivery ON codehost_outcome (delivery_id);

-- Tokens by which a CI run deploys one branch for a while, as hashes.
CREATE TABLE deploy_token (
    hash TEXT PRIMARY KEY,
    link_id TEXT NOT NULL REFERENCES codehost_link (id) ON DELETE CASCADE,
    app_id TEXT NOT NULL,
    branch TEXT NOT NULL,
    sha TEXT NOT NULL,
    target TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL
);
CREATE INDEX deploy_token_link ON deploy_token (link_id);
CREATE INDEX deploy_token_old ON deploy_token (expires_at);
