"""How gradients come to the server: at once, through queues in order, or shard by shard."""
