kernel::settings! {
    /// Agents.
    pub struct Settings {
        /// The chains whose wallets agents may sign in with, as in CAIP-2.
        agent_chains: Vec<String> = "eip155:1,eip155:10,eip155:56,eip155:100,eip155:137,eip155:8453,eip155:42161,eip155:11155111,solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp,solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1";
    }
}
