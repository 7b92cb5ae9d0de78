-- What domains demand of those who deliver mail to them (MTA-STS, RFC 8461), for as long as they said.
CREATE TABLE email_policy (
    domain TEXT PRIMARY KEY,
    policy_id TEXT NOT NULL,
    -- enforce, testing or none
    mode TEXT NOT NULL,
    -- Names and patterns of servers, separated by spaces.
    servers TEXT NOT NULL,
    expires_at BIGINT NOT NULL
);
CREATE INDEX email_policy_old ON email_policy (expires_at);
