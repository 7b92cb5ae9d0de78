kernel::settings! {
    /// Skills.
    pub struct Settings {
        /// SHA-256 digests of files and packages that are never published.
        skill_blocked_digests: Vec<String> = "";
    }
}
