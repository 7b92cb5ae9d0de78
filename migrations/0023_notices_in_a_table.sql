-- What nodes tell each other on PostgreSQL, from the commit of the transaction that says it until a node has sent it. Each
-- row holds a list in JSON. Rows live for milliseconds and are read in no order, so there is no key to look them up by.
-- SQLite has one node, and no rows here.
CREATE TABLE notice (body TEXT NOT NULL);
