-- Wallets and names of servers that the platform suspended and whose organization was deleted since, as hashes. They are not
-- verified again under another organization for as long as they are here.
CREATE TABLE suspended_name (
    hash TEXT PRIMARY KEY,
    deleted_at BIGINT NOT NULL
);
CREATE INDEX suspended_name_old ON suspended_name (deleted_at);
