package ai.h2o.sparkling.backend.utils;

import ai.h2o.sparkling.H2OConf;
import ai.h2o.sparkling.H2OContext;
import ai.h2o.sparkling.backend.NodeDesc;
import java.net.URI;

/**
 * Stands in for Sparkling Water's class of the same name, which opens a Flow proxy on every network
 * interface whatever the configuration says. No proxy is needed: the client talks to the first H2O node
 * itself, on the address that node was told to bind. Found first because this jar opens the class path.
 *
 * <p>Sparkling Water is Scala; to the JVM a Scala object is a class whose only instance is MODULE$.
 */
public final class ProxyStarter$ {
  public static final ProxyStarter$ MODULE$ = new ProxyStarter$();

  private ProxyStarter$() {}

  /** Starts nothing and returns the address of the first H2O node. */
  public URI startFlowProxy(H2OContext context, H2OConf conf) {
    NodeDesc first = context.getH2ONodes()[0];
    return URI.create(conf.getScheme() + "://" + first.hostname() + ":" + first.port());
  }

  /** Nothing was started. */
  public void stopFlowProxy() {}
}
