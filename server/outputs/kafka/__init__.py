"""Changes as records of Kafka's topics, in Canal's forms, by librdkafka."""
