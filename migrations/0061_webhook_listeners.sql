-- A listener is a webhook whose deliveries a command line fetches by a stream. It is deleted some time after
-- `listens_until`, which is put off while the stream lives. `listener_of` is the account that listens; `mirrors` is the
-- webhook whose secret signs its deliveries, if it listens along with one.
ALTER TABLE webhook ADD COLUMN listens_until BIGINT;
ALTER TABLE webhook ADD COLUMN listener_of TEXT;
ALTER TABLE webhook ADD COLUMN mirrors TEXT;
CREATE INDEX webhook_listening ON webhook (listens_until) WHERE listens_until IS NOT NULL;
CREATE INDEX webhook_mirrors ON webhook (mirrors) WHERE mirrors IS NOT NULL;
