//! The mails about proofs of MCP servers.
use tenancy::messages::mail::{Letter, Mail, Sample};

pub const MAILS: &[Sample] = &[
    Sample(|| Box::new(sample(McpNews::Failing))),
    Sample(|| Box::new(sample(McpNews::Lapsed))),
    Sample(|| Box::new(sample(McpNews::Superseded))),
];

fn sample(news: McpNews) -> McpMail {
    let (name, server, domain) = ("Ada".into(), "com.example/weather".into(), "example.com".into());
    McpMail { name, server, domain, page: "/console/orgs/ORG/mcp/SERVER".into(), news }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum McpNews {
    Failing,
    Lapsed,
    Superseded,
}

/// To the admins of the organization of a server.
pub struct McpMail {
    pub name: String,
    pub server: String,
    pub domain: String,
    pub page: String,
    pub news: McpNews,
}

impl Mail for McpMail {
    fn name(&self) -> &'static str {
        match self.news {
            McpNews::Failing => "mcp_proof_failing",
            McpNews::Lapsed => "mcp_proof_lapsed",
            McpNews::Superseded => "mcp_superseded",
        }
    }

    fn letter(&self) -> Letter {
        let words = [self.server.as_str(), self.domain.as_str()];
        let letter = match self.news {
            McpNews::Failing => Letter::new(
                "The proof of your MCP server is gone",
                "The proof that {} belongs on {} was not found. If it stays away for three days, the server gets no more \
                 tokens and leaves the registry.",
                "Restore the DNS record or the file that the server's page shows.",
            ),
            McpNews::Lapsed => Letter::new(
                "Your MCP server is no longer verified",
                "The proof that {} belongs on {} was gone for three days. Its tokens are invalid, and the registry does \
                 not list it.",
                "Restore the DNS record or the file, and verify the server again.",
            ),
            McpNews::Superseded => Letter::new(
                "Your MCP server was superseded",
                "Another organization has proven the domain of {}, and your proof on {} was gone. Its tokens are invalid, \
                 and the registry does not list it.",
                "If the domain is yours, restore the proof and verify the server again.",
            ),
        };
        letter.with(&words).to(&self.name).button("Open MCP server", self.page.as_str())
    }
}
