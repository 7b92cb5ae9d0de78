//! Analytics: exact, for admins, and without anybody who is gone.
