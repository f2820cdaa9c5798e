"""In-context models: trained on other tables, they read this one's training rows as they predict."""
