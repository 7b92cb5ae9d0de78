CREATE TABLE agent (
    machine_id TEXT PRIMARY KEY REFERENCES machine (id) ON DELETE CASCADE,
    -- The namespace of CAIP-2 and the chain in it.
    namespace TEXT NOT NULL,
    chain TEXT NOT NULL,
    -- In lower case for EVM chains; in base58 for Solana.
    wallet TEXT NOT NULL,
    proven BOOLEAN NOT NULL
);
-- Anybody may claim a wallet; one agent has proven it.
CREATE UNIQUE INDEX agent_wallet_key ON agent (wallet) WHERE proven;
CREATE INDEX agent_claims ON agent (wallet);

CREATE TABLE framework_agent (
    machine_id TEXT PRIMARY KEY REFERENCES machine (id) ON DELETE CASCADE,
    framework TEXT NOT NULL,
    version TEXT
);

CREATE TABLE mcp_server (
    machine_id TEXT PRIMARY KEY REFERENCES machine (id) ON DELETE CASCADE,
    slug TEXT NOT NULL,
    domain TEXT NOT NULL,
    -- The name in the registry: com.example/weather.
    full_name TEXT NOT NULL,
    url TEXT,
    title TEXT,
    version TEXT,
    packages TEXT NOT NULL,
    remotes TEXT NOT NULL,
    repository TEXT,
    visibility TEXT NOT NULL,
    -- pending, verified, lapsed or superseded.
    proof TEXT NOT NULL,
    method TEXT,
    token TEXT NOT NULL,
    nonce TEXT NOT NULL,
    public_key TEXT,
    verified_at BIGINT,
    checked_at BIGINT,
    seen TEXT,
    failing_since BIGINT,
    failures BIGINT NOT NULL DEFAULT 0,
    next_check_at BIGINT
);
-- One server has a name, and it has proven its domain.
CREATE UNIQUE INDEX mcp_server_full_name_key ON mcp_server (full_name) WHERE proof = 'verified';
CREATE INDEX mcp_server_domain ON mcp_server (domain);
CREATE INDEX mcp_server_due ON mcp_server (next_check_at) WHERE next_check_at IS NOT NULL;

-- What a server published in the registry, a row a version. It is never changed.
CREATE TABLE mcp_version (
    machine_id TEXT NOT NULL REFERENCES machine (id) ON DELETE CASCADE,
    version TEXT NOT NULL,
    document TEXT NOT NULL,
    published_at BIGINT NOT NULL,
    PRIMARY KEY (machine_id, version)
);
