"""Who is at the page, and how that is known: accounts, a company's proxy, a provider, or a guest's cookie."""
