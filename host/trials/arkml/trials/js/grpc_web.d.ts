// Calls of gRPC services by browsers: grpc-web over fetch, and grpc-websockets.

/** Something that cannot be done with a trial; `code` is gRPC's where a server said so. */
export class TrialError extends Error {
  readonly code: number | undefined;
  constructor(message: string, code?: number, options?: ErrorOptions);
}
