-- Signing in with an account elsewhere.

-- How the account began: `email`, or the name of a provider.
ALTER TABLE account ADD COLUMN auth_provider TEXT NOT NULL DEFAULT 'email';
-- What everybody sees of `social_identity`, as JSON. It is written with it, so that reading a person stays one row.
ALTER TABLE account ADD COLUMN linked TEXT NOT NULL DEFAULT '{}';

-- A person at a provider is the provider's own id for them, never an address. The address is what the provider said
-- last, proven or not. Its tokens are sealed.
CREATE TABLE social_identity (
    provider TEXT NOT NULL,
    subject TEXT NOT NULL,
    account_id TEXT NOT NULL REFERENCES account (id) ON DELETE CASCADE,
    email TEXT,
    email_verified BOOLEAN NOT NULL,
    username TEXT,
    name TEXT,
    avatar_url TEXT,
    sealed BYTEA,
    linked_at BIGINT NOT NULL,
    last_used_at BIGINT NOT NULL,
    PRIMARY KEY (provider, subject),
    UNIQUE (account_id, provider)
);
