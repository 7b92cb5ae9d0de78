-- A row of idempotent_reply is now written by the transaction that carries the request out, together with the answer.
-- One without a status therefore says that the request was carried out and its answer was not kept; before, it said that
-- a request was at work, or had been when its node died. What was said in the old way is forgotten.
DELETE FROM idempotent_reply WHERE status IS NULL;
