"""What a spec or platform file declares, tried: keys that nothing reads, declarations that no case reaches."""
